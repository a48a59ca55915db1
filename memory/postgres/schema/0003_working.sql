-- Working memories: keys and values of an agent's own, each with its end. body is sealed as agent.settings; size is what an entry counts against its
-- agent's limit, key and value as they were given.
CREATE TABLE working (
  agent_no   bigint NOT NULL,
  key        text COLLATE "C" NOT NULL,
  size       bigint NOT NULL,
  updated_ms bigint NOT NULL,
  expires_ms bigint NOT NULL,
  body       bytea NOT NULL,
  PRIMARY KEY (agent_no, key)
);
CREATE INDEX working_expires ON working (expires_ms);
