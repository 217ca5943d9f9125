ALTER TABLE plan RENAME COLUMN price TO price_cents;
