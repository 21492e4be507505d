-- Times are milliseconds since the Unix epoch.
CREATE TABLE weir_rules (
	id         TEXT    NOT NULL PRIMARY KEY,
	domain     TEXT    NOT NULL,
	scope      TEXT    NOT NULL,
	pattern    TEXT    NOT NULL,
	enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
	version    INTEGER NOT NULL CHECK (version > 0),
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	body       TEXT    NOT NULL CHECK (json_type(body) = 'object'),
	UNIQUE (domain, scope, pattern)
) STRICT;

-- Pages are found and rules are counted in this index alone.
CREATE INDEX weir_rules_listing ON weir_rules (created_at, id, domain, scope, enabled);

-- One row. Every write begins by counting it up.
CREATE TABLE weir_revision (
	one      INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
	revision INTEGER NOT NULL
) STRICT;
INSERT INTO weir_revision (revision) VALUES (0);

CREATE TABLE weir_audit (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	revision   INTEGER NOT NULL,
	at         INTEGER NOT NULL,
	subject    TEXT    NOT NULL,
	request_id TEXT    NOT NULL,
	action     TEXT    NOT NULL CHECK (action IN ('create', 'update', 'delete')),
	rule_id    TEXT    NOT NULL,
	before     TEXT    CHECK (json_type(before) = 'object'),
	after      TEXT    CHECK (json_type(after) = 'object')
) STRICT;
CREATE INDEX weir_audit_rule ON weir_audit (rule_id, seq);
CREATE INDEX weir_audit_subject ON weir_audit (subject, seq);
