CREATE TABLE plan (name text PRIMARY KEY, cents int NOT NULL);
INSERT INTO plan VALUES ('solo', 500), ('team', 1500), ('legacy', 900);
