// Package app wires weir together and runs it: it builds every part in order from the settings, serves, drains, and closes
// what it built in reverse. It holds no logic of its own about limits.
package app
