package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// set reads text into the setting v: a scalar of a file, a variable's value or a flag's. A list's elements are separated
// by commas. The error says what to write instead; it does not repeat a secret.
func set(v reflect.Value, text string) error {
	switch v.Type() {
	case durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration: write one such as 250ms, 30s or 5m", text)
		}
		v.SetInt(int64(d))
		return nil
	case secretType:
		v.Set(reflect.ValueOf(NewSecret(text)))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, ok := map[string]bool{"true": true, "false": false}[strings.ToLower(text)]
		if !ok {
			return fmt.Errorf("%q is neither true nor false: write one of them", text)
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no whole number: write one such as 100", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is no number: write one such as 0.5", text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		v.Set(reflect.ValueOf(splitList(text)))
	default:
		return fmt.Errorf("a setting of type %s cannot be read", v.Type())
	}
	return nil
}

// splitList splits at commas and drops spaces and empty elements.
func splitList(text string) []string {
	var list []string
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); element != "" {
			list = append(list, element)
		}
	}
	return list
}
