package pdk

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func message(t testing.TB, fields map[string]any) []byte {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	text, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPick(t *testing.T) {
	text := message(t, map[string]any{
		"accept": "text/html", "X-Twice": []any{"a", "b"}, "flag": true, "number": 7.0, "other": "no", "deep": []any{[]any{"x"}},
	})
	got, err := pick(text, []string{"accept", "x-twice", "flag", "number", "missing", "deep"})
	want := map[string]string{"accept": "text/html", "x-twice": "a, b", "flag": "", "number": "", "deep": ""}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("pick = %v, %v, want %v", got, err, want)
	}
}

// pick reads the same as the library where that reads anything, and never fails where it does not have to.
func FuzzPick(f *testing.F) {
	f.Add(message(f, map[string]any{"accept": "text/html", "b": []any{"x", 1.0}}))
	f.Add([]byte("\x0a\x0b\x0a\x06accept\x12\x01\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := pick(text, []string{"accept"})
		var s structpb.Struct
		if proto.Unmarshal(text, &s) != nil {
			return
		}
		if err != nil {
			t.Fatalf("pick failed where the library did not: %v", err)
		}
		value, ok := s.GetFields()["accept"]
		if single, is := value.GetKind().(*structpb.Value_StringValue); ok && is && len(s.GetFields()) == 1 {
			if _, found := got["accept"]; !found {
				t.Fatalf("not found: %q", single.StringValue)
			}
		}
	})
}
