package dropin

import "strings"

// Kind is how a variable's value is read.
type Kind uint8

// The kinds, as envconfig reads them.
const (
	Text     Kind = iota
	Bool          // as of strconv.ParseBool: true, false, 1, 0, t, f ...
	Integer       // in base 10, or with a prefix such as 0x
	Number        // a floating-point number
	Duration      // as of time.ParseDuration: 250ms, 30s, 24h
	List          // a,b,c
	Map           // name:value,name:value
)

// Variable is one variable of envoyproxy/ratelimit.
type Variable struct {
	// Name is the variable's, or with a * at its end what the names of several begin with.
	Name string
	Kind Kind
	// Default is what envoyproxy/ratelimit takes if the variable is not set.
	Default string
	// Doc is what becomes of it: the settings that it turns into, or what takes its place.
	Doc string

	// Exactly one of these says what is done.

	// setting gets the value, as it is, if the variable is set.
	setting string
	// to is called whether or not the variable is set.
	to func(*mapping, *Variable)
	// with is the variable whose function reads this one too.
	with string
	// instead is what takes the variable's place, told if it is set to anything but its default.
	instead string

	// needs, if not nil, is what the variable has a meaning with; without it it is told to have none, if it is set to anything but
	// its default.
	needs *condition
	// secret keeps the value out of messages.
	secret bool
}

// condition is something about other variables.
type condition struct {
	holds func(*mapping) bool
	text  string // in words: "CONFIG_TYPE is GRPC_XDS_SOTW"
}

// names tells whether the variable has this name.
func (v *Variable) names(name string) bool {
	prefix, several := strings.CutSuffix(v.Name, "*")
	return name == v.Name || several && len(name) > len(prefix) && strings.HasPrefix(name, prefix)
}

// Variables returns every variable that envoyproxy/ratelimit knows, in the order of its documentation.
func Variables() []Variable { return append([]Variable(nil), table...) }
