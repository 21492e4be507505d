// Package lease answers for busy counters from hits that were taken ahead.
//
// Where a rule has a lease (ratelimit.Lease), and a counter of it is asked for again and again by this replica, its Store takes
// some hits more than were asked for from the store behind, all at once, and hands them out in this process until they are
// spent or their time is over. One round trip serves hundreds of hits.
//
// # What makes it exact
//
// A hit that is handed out was charged before, so the store behind never allows more than the limit, whatever becomes of the
// hits that are held here: those that nobody spends are lost, none is ever given back or invented. What is left to care for is
// that they are spent late. They are spent at most Lease.TTL after the store was asked; a lease of a fixed or sliding window also
// ends with the window in which it was taken, by what the store said of it; and a token bucket with leases is smaller by what
// flows in during a TTL. Time is measured from before the store was asked, on a clock that does not step, and a thousandth is
// taken off for clocks that run at different speeds.
//
// A lease ends at once when its counter is reset or given something back, here or, as soon as that is announced (Drop), by
// another process; when the counter's limit is another one, as after a change of rules; and when the store behind cannot be
// asked, or announcements cannot be heard.
//
// # What it costs
//
// Strictness to the other side: while hits lie in one replica's lease, a client of another replica may be denied although the
// limit is not reached, and what a lease loses stays lost for the rest of the window. (One of the same replica is not: before it is
// denied, it waits for a lease that is under way.) So a lease is no larger than what this
// replica is asked for within half a TTL, grows at most to the double each time, and never takes more than a sixteenth of what
// the store has left: close to the limit every hit goes to the store again.
//
// Charges of several hits, with an ID, or that give back, always go to the store behind. So does a look, to whose answer is
// added what is held here. A cost above what is held takes that and asks the store for the rest.
package lease
