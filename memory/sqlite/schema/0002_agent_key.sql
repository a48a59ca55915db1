-- What finds an agent beside its id: the keys by which platforms name a call. Of a live agent's own keys no other live agent of the project has
-- one (shared = 0); a shared one, such as a channel, may belong to several.
CREATE TABLE agent_key (
  project  TEXT NOT NULL,
  key      TEXT NOT NULL,
  agent_no INTEGER NOT NULL,
  shared   INTEGER NOT NULL,
  PRIMARY KEY (project, key, agent_no)
) WITHOUT ROWID;
CREATE INDEX agent_key_agent ON agent_key (agent_no);
-- Agents of before are found by their channels too. A value that is odd or long has a key of another form, and its agent none.
INSERT INTO agent_key (project, key, agent_no, shared)
  SELECT project, 'agora.channel:' || channel, no, 1 FROM agent
  WHERE channel <> '' AND length(channel) <= 128 AND channel NOT GLOB '*[^-a-zA-Z0-9_.:/+=@]*';
