-- What the reply in the making waits for, such as another attempt of the provider, for those who watch from other processes.
ALTER TABLE draft ADD COLUMN notice TEXT NOT NULL DEFAULT '';
