package rules

import "errors"

// Load reads files and folders.
func Load(paths []string, opts Options) (*Table, error) { return nil, errors.New("not yet") }
