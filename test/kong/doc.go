// Package kong plays Kong for tests: nginx workers that speak to the real plugin binary over its real socket, as Kong's
// kong/runloop/plugin_servers does, which is the source of everything here. Each worker has instances and pooled connections
// of its own; response.exit is never answered and its connection closed later; an error that says "closed" makes a worker
// forget its instances and run the event again. Where real Kong would give a client a 500, or a call is not one that Kong
// offers in the access phase, the test fails. A Front is a node's proxy, for tests of whole requests.
package kong
