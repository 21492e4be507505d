// Package engine decides about requests: it finds each descriptor's rule, charges the rule's limits in a Store, and folds
// the results into one answer.
//
// It works on batches, filled in place, so that a front that has read many calls at once asks the store once and leaves no
// garbage: match -> plan -> Store.Take -> fold. Everything a transport may choose (protocol, headers, status codes) is
// outside; everything a store may choose (memory, Redis, failure modes) is behind Store.
package engine
