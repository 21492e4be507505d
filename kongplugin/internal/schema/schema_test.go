package schema_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/kongplugin/internal/schema"
)

func TestDumpKeepsKongsRules(t *testing.T) {
	dump, err := schema.Dump("/kong_prefix/weir-ratelimit.socket")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(dump, []byte("\n")) != 1 {
		t.Error("the dump is not one line")
	}
	faults, err := checkDump(dump)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// The check itself finds what keeps Kong from starting.
func TestMetaschemaFindsFaults(t *testing.T) {
	dump, err := schema.Dump("/x")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown attribute":                  {`"default":"grpc"`, `"default":"grpc","secret":true`},
		"a default that is not one of":          {`"default":"grpc"`, `"default":"tcp"`},
		"a default of another type":             {`"default":50051`, `"default":"50051"`},
		"a default out of bounds":               {`"default":50051`, `"default":70000`},
		"a short description":                   {`"description":"Port of the node."`, `"description":"Port."`},
		"a long description":                    {`"description":"Port of the node."`, `"description":"` + strings.Repeat("x", 501) + `"`},
		"one_of on a boolean":                   {`{"type":"boolean"`, `{"type":"boolean","one_of":[true]`},
		"between on a string":                   {`"len_max":253`, `"between":[1,2]`},
		"an array without elements":             {`"elements":`, `"keys":`},
		"an unknown type":                       {`{"type":"integer"`, `{"type":"int64"`},
		"an entity check of no field":           {`"config.minute"`, `"minute"`},
		"an entity check of an unknown kind":    {`"mutually_required"`, `"all_or_nothing"`},
		"an unknown argument of a check":        {`"if_field"`, `"when_field"`},
		"a version that is none":                {`"Version":"0.1.0"`, `"Version":"0.1"`},
		"an empty default of a string":          {`"default":"kong"`, `"default":""`},
		"a name that is not the plugin's":       {`"Schema":{"name":"weir-ratelimit"`, `"Schema":{"name":"weir"`},
		"a protocol that Kong does not know":    {`"ProtoBuf:1"`, `"ProtoBuf:2"`},
		"a field that stands there twice":       {`{"header_name":`, `{"path":`},
		"bounds that are no integers":           {`"between":[0,1]`, `"between":[0.5,1]`},
		"a required attribute that is no truth": {`"required":true`, `"required":1`},
	} {
		t.Run(name, func(t *testing.T) {
			broken := strings.Replace(string(dump), change[0], change[1], 1)
			if broken == string(dump) {
				t.Fatalf("the dump does not hold %s", change[0])
			}
			faults, err := checkDump([]byte(broken))
			if err != nil {
				t.Fatal(err)
			}
			if len(faults) == 0 {
				t.Error("not found")
			}
		})
	}
}

func TestSchemaFileIsCurrent(t *testing.T) {
	file, err := os.ReadFile("../../schema.lua")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != schema.Lua() {
		t.Error("kongplugin/schema.lua is not what the schema says: run `make generate`")
	}
}
