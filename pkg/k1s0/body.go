package k1s0

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// MaxBody bounds a request's body, in bytes.
const MaxBody = 1 << 20

// maxNesting bounds objects and lists in a body; the API needs 4.
const maxNesting = 16

// readBody reads a request's body, which must be one JSON object.
func readBody(r *http.Request) (*fields, error) {
	if err := checkMediaType(r.Header.Values("Content-Type")); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge) || len(text) > MaxBody:
		return nil, &Error{Code: CodeBodyTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", MaxBody)}
	case err != nil:
		return nil, &Error{Code: CodeValidation, Message: "the body ended before it was whole", cause: err}
	}
	object, err := parseObject(text)
	if err != nil {
		return nil, &Error{Code: CodeValidation, Message: "the body is not what is expected: " + err.Error()}
	}
	return &fields{object: object}, nil
}

func checkMediaType(values []string) error {
	refused := &Error{Code: CodeMediaType, Message: "send a JSON body with Content-Type: application/json"}
	if len(values) != 1 {
		return refused
	}
	kind, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || kind != "application/json" {
		return refused
	}
	for name, value := range parameters {
		if name == "charset" && !strings.EqualFold(value, "utf-8") {
			return refused
		}
	}
	return nil
}

// object is a JSON object. encoding/json by itself would take the last of two keys that are the same, and keys in any case.
type object map[string]any

// parseObject reads exactly one object, in which no key comes twice at any depth.
func parseObject(text []byte) (object, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	parsed, ok := value.(object)
	if !ok {
		return nil, errors.New("it is no JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return parsed, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, badJSON(err)
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		return token, nil
	}
	if depth == maxNesting {
		return nil, fmt.Errorf("it nests deeper than %d levels", maxNesting)
	}
	if delimiter == '[' {
		list := []any{}
		for d.More() {
			element, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		return list, closed(d)
	}
	members := object{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, badJSON(err)
		}
		name, _ := key.(string) // the decoder takes nothing else for a key
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("the key %q comes twice", shortened(name))
		}
		if members[name], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	return members, closed(d)
}

// closed reads the end of an object or a list.
func closed(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return badJSON(err)
	}
	return nil
}

func badJSON(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is no JSON, at byte %d", syntax.Offset)
	}
	return errors.New("it is no JSON, or not all of it")
}
