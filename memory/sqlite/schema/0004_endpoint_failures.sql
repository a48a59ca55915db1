-- When an endpoint failed last: a run of failures ends with a success or with a long silence.
ALTER TABLE endpoint ADD COLUMN last_failure_ms INTEGER NOT NULL DEFAULT 0;
UPDATE endpoint SET last_failure_ms = first_failure_ms;
