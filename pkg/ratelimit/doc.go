// Package ratelimit holds the nouns that every other package of weir speaks in: descriptors and requests as gateways send
// them, rules and limits as people write them, charges and results as stores see them. It imports the standard library
// only and does no I/O.
package ratelimit
