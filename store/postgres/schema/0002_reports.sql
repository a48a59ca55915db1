-- Calls whose counts are to be brought into the reports: they have ended, were changed after their
-- end, or were erased. rev is that of the agent's head then, 0 for an erased one. See
-- memory.Due.
CREATE TABLE report_due (
  project  text COLLATE "C" NOT NULL,
  agent_no bigint NOT NULL,
  id       text NOT NULL,
  rev      bigint NOT NULL,
  PRIMARY KEY (project, agent_no)
);
INSERT INTO report_due (project, agent_no, id, rev)
  SELECT a.project, a.no, a.id, h.rev FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.status IN (4, 6);
