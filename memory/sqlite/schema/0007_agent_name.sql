-- A new agent may go on with the memory of the one of its name that ended last.
CREATE INDEX agent_ended_name ON agent (project, name, stop_ms) WHERE status IN (4, 6) AND name <> '';
