// Package rules reads the YAML rule format, checks it, and compiles it to an immutable [Table] that answers which rule
// covers a descriptor.
//
// The stages are separate, so that a database or a control plane can build tables without YAML:
//
//	Parse    one file's bytes to definitions with positions
//	Compile  the definitions of any number of sources to one Table, or all their problems
//	Load     files and folders, through both
//	Watcher  Load again whenever something changed
//
// # Matching
//
// A descriptor's entries are taken in order, one level of the rules each. At a level the first of these wins:
//
//  1. the definition with exactly this key and value,
//  2. the patterns (a '*' in the value or in the key, CIDR, prefix, suffix, glob, regex), by priority, then in the order
//     in which they stand in the file,
//  3. the definition with this key and no value.
//
// There is no way back: what won at one level stays, even if nothing fits below it. A limit applies only where it stands
// at exactly the descriptor's depth. Otherwise the domain's default applies, if it has one.
//
// The cost of a match does not grow with the number of exact rules. Prefixes and suffixes are found in a trie, CIDR blocks by
// binary search. Wildcards, globs and regular expressions are found by the literal text with which they begin (or, for
// the first two, end), and only those that share this text are tried one by one; a pattern without such text, and
// wildcards in keys, are always tried.
package rules
