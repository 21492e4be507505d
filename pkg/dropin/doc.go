// Package dropin maps the environment of envoyproxy/ratelimit onto weir's own settings, so that weir takes its place where an
// image is swapped and nothing else is. The table of all variables is in table.go: each one becomes a setting, or is answered by a
// notice that says what takes its place. None is passed over in silence.
//
// Names, defaults and the ways in which values are read are those of envoyproxy/ratelimit's src/settings/settings.go, which reads
// them by github.com/kelseyhightower/envconfig.
package dropin
