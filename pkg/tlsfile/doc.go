// Package tlsfile makes TLS configurations from PEM files, and follows the files when they change: a certificate that was
// renewed, or a Kubernetes Secret whose folder was swapped by its symlink, serves the next connection. Connections that are
// open stay as they are.
//
// The files are looked at when a connection needs them, at most once per CheckEvery, so there is no goroutine to stop. New
// files that cannot be used, such as a certificate whose key is not there yet, change nothing: the pair before them stays
// in use, the failure is logged once, and it is tried again.
package tlsfile
