package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// EnvPrefix begins the name of every environment variable that is a setting.
const EnvPrefix = "WEIR_"

// Field describes one setting.
type Field struct {
	Path    string // in the file: "redis.pool_size"
	Env     string // in the environment: "WEIR_REDIS_POOL_SIZE"
	Default string // as written in a file; "" for nothing
	Doc     string // what it is for
	Range   string // "1 to 65535", "text or json"; "" if anything goes
}

// Fields describes every setting, in the order of Config's fields.
func Fields() []Field {
	var fields []Field
	for _, s := range settings(Defaults()) {
		fields = append(fields, Field{
			Path:    s.path,
			Env:     s.env(),
			Default: show(s.value),
			Doc:     s.tag.Get("doc"),
			Range:   s.span(),
		})
	}
	return fields
}

// setting is one leaf of a Config.
type setting struct {
	path  string
	value reflect.Value // settable
	tag   reflect.StructTag
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[Secret]()
)

// settings returns every leaf of c, in order.
func settings(c *Config) []setting {
	var leaves []setting
	walk(reflect.ValueOf(c).Elem(), "", func(s setting) { leaves = append(leaves, s) })
	return leaves
}

func walk(section reflect.Value, prefix string, visit func(setting)) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		path := prefix + field.Tag.Get("yaml")
		if isSection(field.Type) {
			walk(section.Field(i), path+".", visit)
			continue
		}
		visit(setting{path, section.Field(i), field.Tag})
	}
}

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != secretType }

func (s setting) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.path, ".", "_"))
}

// choices are the values that a string may have; nil if any.
func (s setting) choices() []string {
	if oneof, ok := s.tag.Lookup("oneof"); ok {
		return strings.Split(oneof, "|")
	}
	return nil
}

// span is the range in words.
func (s setting) span() string {
	if choices := s.choices(); choices != nil {
		return alternatives(choices)
	}
	if lowest := s.tag.Get("min"); lowest != "" {
		return lowest + " to " + s.tag.Get("max")
	}
	return ""
}

// alternatives writes "a, b or c", leaving out the empty word.
func alternatives(words []string) string {
	if len(words) > 0 && words[0] == "" {
		words = words[1:]
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// show writes a setting's value as a file would, without secrets.
func show(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return showDuration(value)
	case []string:
		return strings.Join(value, ", ")
	case interface{ String() string }:
		return value.String()
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	default:
		return v.String()
	}
}

// showDuration writes 5m rather than 5m0s.
func showDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
