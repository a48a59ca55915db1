-- An agent may be had in hand for several things at a time: what says for which.
ALTER TABLE agent_lease ADD COLUMN what text NOT NULL DEFAULT 'timers';
ALTER TABLE agent_lease DROP CONSTRAINT agent_lease_pkey;
ALTER TABLE agent_lease ADD PRIMARY KEY (agent_no, what);
