// Package schema describes the plugin's configuration, once, for all who ask: Kong, which reads it from `-dump` and refuses
// a config that breaks it; Konnect, which wants it as schema.lua; and the plugin itself, which gets configs that Kong has
// checked and still reads them with care (Normalize), because a config that a plugin cannot read is a 500 on every request.
//
// Kong accepts a schema only if its own schema (the metaschema) does: an attribute that it does not know, a default that
// breaks its own rule, a description that is too short or too long keep Kong from starting. The test of Dump holds it to
// these rules.
package schema
