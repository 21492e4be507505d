// Package ruleset keeps the rules in force current: it merges those of rule files and those of the rule store into one
// table, and makes a new table whenever either changes.
//
// Where both have a rule for the same place, the file's is in force, and the stored one waits: files are how people make
// sure of something. A source that is broken or away takes nothing out of force: what it said last stays.
package ruleset
