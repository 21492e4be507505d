// Package ruleset keeps the rules in force current: it merges those of all its sources, such as rule files, a control plane and the
// rule store, into one table, and makes a new table whenever one of them changes.
//
// Where two sources have a rule for the same place, that of the source that was added first is in force, and the other one waits:
// files come before a control plane, and both before the rule store, because files are how people make sure of something. A source
// that is broken or away takes nothing out of force: what it said last stays.
package ruleset
