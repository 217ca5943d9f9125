ALTER TABLE plan RENAME COLUMN cents TO price;
DELETE FROM plan WHERE name = 'legacy';
