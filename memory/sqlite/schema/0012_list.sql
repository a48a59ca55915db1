-- Lists of agents find those of a status by start and by id, and those of a channel, however many others there are.
DROP INDEX agent_start;
CREATE INDEX agent_state_start ON agent (project, status, start_ms, id);
CREATE INDEX agent_state_id ON agent (project, status, id);
CREATE INDEX agent_channel ON agent (project, channel, id, status);
