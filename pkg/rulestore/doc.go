// Package rulestore keeps the rules that are made through the API, as opposed to those in rule files, in Postgres or in
// SQLite.
//
// Both databases show one behaviour, the contract of Store: every change is one transaction that also counts the store's
// revision up and writes who made it, what was and what is to the audit table. A replica follows the revision with Watch:
// Postgres tells it of changes with LISTEN/NOTIFY, and a poll beneath it finds those whose notification was lost.
//
// What identifies a rule and what lists are made by are columns; the rest of a rule is one JSON body, so a new field needs
// no migration. Migrations are embedded and run under a lock when the database first answers: a database that is down
// stops neither Open nor the process, its calls fail with ErrUnavailable until it is there.
package rulestore
