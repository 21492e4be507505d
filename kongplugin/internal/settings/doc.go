// Package settings reads one plugin instance's config into Go values and checks what several settings mean together.
package settings
