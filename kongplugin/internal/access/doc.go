// Package access is what the plugin does with a request: find out who it is, have it counted, and tell the client. It never
// leaves a request waiting or failing for a reason of its own: what cannot be decided passes or gets fault_code, as set.
package access
