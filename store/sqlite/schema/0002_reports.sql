-- Calls whose counts are to be brought into the reports: they have ended, were changed after their
-- end, or were erased. rev is that of the agent's head then, 0 for an erased one. See
-- memory.Due.
CREATE TABLE report_due (
  project  TEXT NOT NULL,
  agent_no INTEGER NOT NULL,
  id       TEXT NOT NULL,
  rev      INTEGER NOT NULL,
  PRIMARY KEY (project, agent_no)
) WITHOUT ROWID;
INSERT INTO report_due (project, agent_no, id, rev) SELECT project, no, id, head_rev FROM agent WHERE status IN (4, 6);
