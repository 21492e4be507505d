CREATE TABLE weir_rules (
	id         uuid        PRIMARY KEY,
	domain     text        COLLATE "C" NOT NULL,
	scope      text        COLLATE "C" NOT NULL,
	pattern    text        COLLATE "C" NOT NULL,
	enabled    boolean     NOT NULL,
	version    bigint      NOT NULL CHECK (version > 0),
	created_at timestamptz NOT NULL,
	updated_at timestamptz NOT NULL,
	body       jsonb       NOT NULL CHECK (jsonb_typeof(body) = 'object'),
	CONSTRAINT weir_rules_match UNIQUE (domain, scope, pattern)
);

-- Pages are found and rules are counted in this index alone.
CREATE INDEX weir_rules_listing ON weir_rules (created_at, id, domain, scope, enabled);

-- One row. Every write begins by counting it up, which also makes writes serial: a revision is never seen before a smaller one.
CREATE TABLE weir_revision (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	revision bigint  NOT NULL
);
INSERT INTO weir_revision (revision) VALUES (0);

CREATE TABLE weir_audit (
	seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	revision   bigint      NOT NULL,
	at         timestamptz NOT NULL,
	subject    text        COLLATE "C" NOT NULL,
	request_id text        NOT NULL,
	action     text        NOT NULL CHECK (action IN ('create', 'update', 'delete')),
	rule_id    uuid        NOT NULL,
	before     jsonb,
	after      jsonb
);
CREATE INDEX weir_audit_rule ON weir_audit (rule_id, seq);
CREATE INDEX weir_audit_subject ON weir_audit (subject, seq);
