package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// Every block decodes to the same fields, also after the server has changed the table's size, and soon costs nothing.
func TestRequestHeader(t *testing.T) {
	h := newRequestHeader("localhost:1", 20*time.Millisecond)
	decoder := hpack.NewDecoder(defaultTableSize, nil)
	check := func() []byte {
		t.Helper()
		block, err := h.block()
		if err != nil {
			t.Fatal(err)
		}
		fields, err := decoder.DecodeFull(block)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, field := range fields {
			got[field.Name] = field.Value
		}
		for name, value := range map[string]string{
			":method": "POST", ":path": methodPath, ":authority": "localhost:1", ":scheme": "http", "te": "trailers",
			"content-type": "application/grpc", "grpc-timeout": "20m",
		} {
			if got[name] != value {
				t.Fatalf("%s is %q, want %q", name, got[name], value)
			}
		}
		return bytes.Clone(block)
	}
	for _, size := range []uint32{defaultTableSize, 0, 100, 1 << 30} {
		if size != defaultTableSize {
			h.limit(size)
		}
		check()
		check()
		if block := check(); size >= defaultTableSize && (len(block) != len(h.fields) || !h.settled) {
			t.Errorf("with a table of %d bytes a block takes %d bytes for %d fields", size, len(block), len(h.fields))
		}
		if h.settled != (size >= defaultTableSize) {
			t.Errorf("with a table of %d bytes settled is %v", size, h.settled)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = h.block() }); n != 0 {
		t.Errorf("%v allocations per block", n)
	}
}

// Whatever a server sends, a reader that remembers blocks reads the same as one that does not.
func TestHeaderReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buffer bytes.Buffer
		encoder := hpack.NewEncoder(&buffer)
		reader := newHeaderReader()
		for range rapid.IntRange(1, 60).Draw(t, "blocks") {
			if rapid.IntRange(0, 9).Draw(t, "resize") == 0 {
				encoder.SetMaxDynamicTableSize(rapid.Uint32Range(0, defaultTableSize).Draw(t, "size"))
			}
			want := replyHeader{
				status:     rapid.SampledFrom([]string{"", "200", "503"}).Draw(t, "status"),
				grpcStatus: rapid.SampledFrom([]string{"", "0", "14"}).Draw(t, "grpc-status"),
				message:    rapid.SampledFrom([]string{"", "gone"}).Draw(t, "message"),
			}
			buffer.Reset()
			write := func(name, value string) {
				if value == "" {
					return
				}
				field := hpack.HeaderField{Name: name, Value: value, Sensitive: rapid.IntRange(0, 9).Draw(t, "sensitive") == 0}
				if err := encoder.WriteField(field); err != nil {
					t.Fatal(err)
				}
			}
			write(":status", want.status)
			if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
				write("x-other", fmt.Sprint(rapid.IntRange(0, 100).Draw(t, "value")))
			}
			write("grpc-status", want.grpcStatus)
			write("grpc-message", want.message)
			got, err := reader.read(buffer.Bytes())
			if err != nil || got != want {
				t.Fatalf("read %+v (%v), want %+v", got, err, want)
			}
		}
		if len(reader.known) > maxKnown {
			t.Fatalf("%d blocks are remembered", len(reader.known))
		}
	})
}

func TestHeadersThatAreNone(t *testing.T) {
	for name, block := range map[string][]byte{
		"an index beyond the table": {0xfe},
		"cut short":                 {0x40, 0x05, 'a'},
		"a string of 2 MiB":         {0x00, 0x7f, 0x81, 0xff, 0x7f, 'a'},
	} {
		if found, err := newHeaderReader().read(block); err == nil {
			t.Errorf("%s is read as %+v", name, found)
		}
	}
	var buffer bytes.Buffer
	encoder := hpack.NewEncoder(&buffer)
	for i := range 10 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: strings.Repeat("v", 8000)})
	}
	if _, err := newHeaderReader().read(buffer.Bytes()); err == nil {
		t.Error("80,000 bytes of headers are read")
	}
}
