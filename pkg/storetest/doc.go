// Package storetest is the behaviour that every engine.Store must show. A store's own test calls Run; what passes here
// can stand in for any other store.
//
// The arithmetic is told in steps that people can read, one file per algorithm in testdata, run on package algo and on
// every store alike. The rest is Go: concurrency, groups, identifiers, hostile keys, memory that the caller uses again.
//
// # Format of the files of steps
//
// A '#' starts a comment. A line is one of
//
//	case NAME
//	limit [NAME] ALGORITHM COUNT/WINDOW [burst=N] [location=ZONE]
//	TIME HIT [+ HIT]... [id=ID] => RESULT [| RESULT]...
//	TIME HIT [+ HIT]... [id=ID] => conflict
//	TIME reset [KEY]...
//
// A case starts with an empty store. A limit that is given again under the same name (or again without one) is a reload:
// the hits below it use the new one on the counters that are there. WINDOW is a duration such as 10s, or month or year.
// TIME is a duration since the start of 2026 (UTC), or a time as in RFC 3339.
//
//	HIT     COST [limit=NAME] [key=KEY] [partial]     KEY is the limit's name if left out, "counter" if it has none
//	RESULT  allowed|denied GRANTED REMAINING RETRY RESET
package storetest
