package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// KeyFunc says by which identifier a call is counted. It returns ErrNoKey if the call has none of its kind.
type KeyFunc func(*Call) (string, error)

// ErrNoKey means that a call has nothing that a KeyFunc could count it by: no such header, no token.
var ErrNoKey = errors.New("the call has no key to count it by")

// What the API takes, in bytes. A client must not be able to make its check fail by a longer text, since failing may mean
// passing.
const (
	// maxKey is the longest identifier, as long as a rule's pattern can be. A longer one is replaced by its hash, so that it
	// is still one of its own.
	maxKey = 1 << 10
	// maxValue is the longest key or value of a descriptor's entry. A longer one is cut, so that patterns still match it.
	maxValue     = 8 << 10
	maxRequestID = 256
)

// ByHeader counts by the value of a header field or gRPC metadata key. A field that is missing, empty, or there more than
// once is ErrNoKey. Whoever can choose the header's value chooses the counter: it fits where something before the service
// has checked it, an API key for example.
func ByHeader(name string) KeyFunc {
	return func(c *Call) (string, error) {
		values := c.Header(name)
		if len(values) != 1 {
			return "", fmt.Errorf("%w: %d headers %s", ErrNoKey, len(values), name)
		}
		value := strings.TrimSpace(values[0])
		if value == "" {
			return "", fmt.Errorf("%w: header %s is empty", ErrNoKey, name)
		}
		return value, nil
	}
}

// ByBearer counts by a hash of the bearer token in Authorization, which itself goes nowhere. The token is not checked:
// anybody gets a new counter by making up a new token, so it is for services that refuse unknown tokens before.
func ByBearer() KeyFunc {
	return func(c *Call) (string, error) {
		values := c.Header("Authorization")
		if len(values) != 1 {
			return "", fmt.Errorf("%w: %d headers Authorization", ErrNoKey, len(values))
		}
		scheme, token, _ := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "bearer") || token == "" {
			return "", fmt.Errorf("%w: Authorization is no bearer token", ErrNoKey)
		}
		return digest(nil, token), nil
	}
}

// ByContext counts by what the service's own authentication has put into the context, such as the subject of a verified JWT.
// subject reports false if there is none.
func ByContext(subject func(context.Context) (string, bool)) KeyFunc {
	return func(c *Call) (string, error) {
		if key, ok := subject(c.Context); ok && key != "" {
			return key, nil
		}
		return "", fmt.Errorf("%w: the context has no subject", ErrNoKey)
	}
}

// ByEndpoint counts all clients together by what they call: the full gRPC method, or the path of the URL, cleaned so that
// /a//b/../b/ and /a/b are one.
func ByEndpoint() KeyFunc {
	return func(c *Call) (string, error) {
		if c.HTTP == nil {
			return c.Method, nil
		}
		return path.Clean("/" + c.HTTP.URL.Path), nil
	}
}

// FirstOf counts by the first of the keys that a call has: by token, or else by address. Give keys that cannot be mistaken
// for one another, by Prefixed for example.
func FirstOf(keys ...KeyFunc) KeyFunc {
	return func(c *Call) (string, error) {
		for _, key := range keys {
			switch text, err := key(c); {
			case err == nil:
				return text, nil
			case !errors.Is(err, ErrNoKey):
				return "", err
			}
		}
		return "", fmt.Errorf("%w: none of %d kinds", ErrNoKey, len(keys))
	}
}

// Prefixed puts a prefix before a key: Prefixed("ip-", byAddress).
func Prefixed(prefix string, key KeyFunc) KeyFunc {
	return func(c *Call) (string, error) {
		text, err := key(c)
		if err != nil {
			return "", err
		}
		return prefix + text, nil
	}
}

// Hashed counts by a key's HMAC-SHA256 under a secret, so that neither weir nor its store learns the key. All replicas of a
// service need the same secret. Rules for single identifiers then have to name the hashes.
func Hashed(secret []byte, key KeyFunc) KeyFunc {
	secret = append([]byte(nil), secret...)
	return func(c *Call) (string, error) {
		text, err := key(c)
		if err != nil {
			return "", err
		}
		return digest(secret, text), nil
	}
}

// digest is 128 bits of a hash as 32 hexadecimal digits: nobody finds two texts with the same one.
func digest(secret []byte, text string) string {
	if len(secret) == 0 {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:16])
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// bounded makes a key fit to be sent: at most most bytes of valid UTF-8, as a protobuf string must be.
func bounded(key string, most int) string {
	if len(key) > most {
		return "sha256-" + digest(nil, key)
	}
	if key = valid(key); len(key) > most { // a replacement is longer than what it replaces
		return "sha256-" + digest(nil, key)
	}
	return key
}

// boundedDescriptors makes descriptors fit to be sent. It changes none of the caller's.
func boundedDescriptors(descriptors []ratelimit.Descriptor) []ratelimit.Descriptor {
	fits := func(text string) bool { return len(text) <= maxValue }
	for i := range descriptors {
		if slices.ContainsFunc(descriptors[i].Entries, func(e ratelimit.Entry) bool { return !fits(e.Key) || !fits(e.Value) }) {
			descriptors = slices.Clone(descriptors)
			break
		}
	}
	for i := range descriptors {
		var entries []ratelimit.Entry
		for j, e := range descriptors[i].Entries {
			if fits(e.Key) && fits(e.Value) {
				continue
			}
			if entries == nil {
				entries = slices.Clone(descriptors[i].Entries)
				descriptors[i].Entries = entries
			}
			entries[j] = ratelimit.Entry{Key: cut(e.Key), Value: cut(e.Value)}
		}
	}
	return descriptors
}

// cut shortens text to what is sent of it.
func cut(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return strings.ToValidUTF8(text[:maxValue], "?")
}
