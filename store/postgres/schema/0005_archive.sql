-- Objects of the archive. One is noted before it is written. used = 1 while the messages of the
-- agent are in it and not in table message. Any other is unneeded: made_ms is 0 if the agent was
-- erased or its messages came back, or else tells for how long the object has been about to be used.
CREATE TABLE archived (
  agent_no bigint NOT NULL,
  object   text COLLATE "C" NOT NULL,
  used     smallint NOT NULL,
  made_ms  bigint NOT NULL,
  PRIMARY KEY (agent_no, object)
);
CREATE INDEX archived_unneeded ON archived (made_ms) WHERE used = 0;
