// Package servers starts the real servers that tests talk to, each on free ports of the loopback interface, and ends them
// with the test that started them. A server that is not installed fails the test with the way to install it.
package servers
