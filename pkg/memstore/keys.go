package memstore

import (
	"crypto/sha256"
	"unsafe"
)

const (
	chunkSize = 44 // bytes; with the reference 48, which most keys fit into
	chunkPage = 256
	// maxKey is the longest key that is kept as it is. Of a longer one, only its length and its digest are.
	maxKey = 6 * chunkSize
)

// shortKey is a key of at most maxKey bytes, or what stands for a longer one.
type shortKey struct {
	text   string
	length int // of the key itself, so that a key that spells another one's digest is not taken for it
}

// shorten returns what is kept of a key. It refers to the key's memory.
func shorten(key string) shortKey {
	if len(key) <= maxKey {
		return shortKey{text: key, length: len(key)}
	}
	digest := sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key)))
	return shortKey{text: string(digest[:]), length: len(key)}
}

// keyRef is where a key is kept.
type keyRef struct {
	first  uint32 // chunk; 0 if the key is empty
	length uint32 // of the key itself
}

// keys holds the bytes of keys in chunks of one size, so that the memory of removed keys fits any others.
type keys struct {
	pages  []*[chunkPage]chunk
	length uint32 // number of chunks in use or free, and of a first one that is neither
	free   uint32
}

type chunk struct {
	bytes [chunkSize]byte
	next  uint32 // of the key, or of the free chunks; 0 at the end
}

func (k *keys) at(n uint32) *chunk { return &k.pages[n/chunkPage][n%chunkPage] }

// add keeps a copy of a key.
func (k *keys) add(key shortKey) keyRef {
	r := keyRef{length: uint32(key.length)}
	link := &r.first
	for text := key.text; text != ""; {
		n := k.take()
		c := k.at(n)
		c.next = 0
		text = text[copy(c.bytes[:], text):]
		*link, link = n, &c.next
	}
	return r
}

// take returns a chunk that is free.
func (k *keys) take() uint32 {
	if n := k.free; n != 0 {
		k.free = k.at(n).next
		return n
	}
	k.length = max(k.length, 1)
	if int(k.length/chunkPage) == len(k.pages) {
		k.pages = append(k.pages, new([chunkPage]chunk))
	}
	k.length++
	return k.length - 1
}

// equal tells whether the key kept at r is key.
func (k *keys) equal(r keyRef, key shortKey) bool {
	if r.length != uint32(key.length) {
		return false
	}
	text := key.text
	for n := r.first; n != 0; {
		c := k.at(n)
		size := min(len(text), chunkSize)
		if string(c.bytes[:size]) != text[:size] {
			return false
		}
		text, n = text[size:], c.next
	}
	return true
}

// remove frees the chunks of a key.
func (k *keys) remove(r keyRef) {
	for n := r.first; n != 0; {
		c := k.at(n)
		n, c.next, k.free = c.next, k.free, n
	}
}
