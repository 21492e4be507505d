package config

import (
	"os"
	"strings"
	"testing"
)

const shipped = "../../config/weir.yaml"

func TestShippedFileIsTheDefaults(t *testing.T) {
	loaded, err := Load(Source{File: shipped})
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(Defaults(), loaded); diff != nil {
		t.Errorf("%s differs from Defaults: %s", shipped, strings.Join(diff, "; "))
	}
}

func TestShippedFileNamesEverySetting(t *testing.T) {
	text, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	d := decoder{file: shipped, places: map[string]place{}}
	// A setting without a value leaves no trace: give the URLs one.
	d.decode([]byte(strings.ReplaceAll(string(text), "\n  url:", "\n  url: redis://localhost")), Defaults())
	if len(d.problems) > 0 {
		t.Fatal(d.problems)
	}
	for _, f := range Fields() {
		if _, ok := d.places[f.Path]; !ok {
			t.Errorf("%s is not in %s", f.Path, shipped)
		}
	}
}
