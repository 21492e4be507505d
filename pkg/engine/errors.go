package engine

import "errors"

// The errors of a request that cannot be decided. Transports answer them as invalid arguments.
var (
	ErrNoDomain      = errors.New("the domain is empty: send the domain that the rules are for")
	ErrNoDescriptors = errors.New("the list of descriptors is empty: send at least one descriptor")
)
