package postgres

import (
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// written are digests of what statements wrote to each column of each table, after one of which
// rows they changed.
type written map[string][]string

// readWritten reads what the statements of a record have written.
func (c *connection) readWritten(n int64, did *alteration.Change) (written, error) {
	all := written{}
	for _, t := range did.Tables {
		sums := []string{
			"(SELECT concat(count(*), ' ', sum(hashtextextended(old, 0))) FROM unwind.event WHERE record = $1 AND relid = $2)"}
		for _, column := range t.Columns {
			value := "(e.n)." + server.Quote(column.Name)
			sums = append(sums,
				fmt.Sprintf("coalesce(sum(hashtextextended(concat(%[2]s, ' ', %[1]s IS NULL, ' ', %[1]s::text), 0)), 0)::text",
					value, keyBefore(t)))
		}
		var digests []string
		if err := c.Canonically(func() error {
			return c.Scan(
				fmt.Sprintf(
					"SELECT ARRAY[%s]::text[] FROM (SELECT old, new::%s AS n FROM unwind.event WHERE record = $1 AND relid = $2 "+
						"AND new IS NOT NULL OFFSET 0) e",
					strings.Join(sums, ", "), t.Quoted()), []any{n, t.OID}, &digests)
		}); err != nil {
			return nil, err
		}
		all[t.FullName()] = digests
	}
	return all, nil
}

// keyBefore is the key of the row of an event, as text, if it was there before.
func keyBefore(t *capture.Table) string {
	return fmt.Sprintf("CASE WHEN e.old IS NOT NULL THEN %s END", t.KeyOf("(e.n)"))
}

// fingerprint sets the digest of each table: it covers the rows as they were and as they will be,
// but for columns in which the statements write something else each time, which it names.
func (c *connection) fingerprint(n int64, did *alteration.Change, foreseen written) error {
	for _, a := range did.Alterations {
		if err := a.Fingerprint(c.Connection); err != nil {
			return err
		}
	}
	now, err := c.readWritten(n, did)
	if err != nil {
		return err
	}
	for _, t := range did.Tables {
		before, is := foreseen[t.FullName()], now[t.FullName()]
		t.Volatile = nil
		if len(before) > 0 && before[0] != is[0] {
			did.Shifting = append(did.Shifting, t.FullName())
		}
		for i, column := range t.Columns {
			if len(before) != len(is) || before[i+1] != is[i+1] {
				t.Volatile = append(t.Volatile, column.Name)
			}
		}
		if err := c.digestTable(n, t); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) digestTable(n int64, t *capture.Table) error {
	const sum = "encode(sha256(coalesce(string_agg(d, NULL ORDER BY d), '')), 'hex')"
	var old, will string
	if err := c.Scan(`SELECT `+sum+
		` FROM (SELECT sha256(convert_to(old, 'UTF8')) || CASE WHEN new IS NULL THEN '\x00' ELSE '\x01' END::bytea AS d
		FROM unwind.event WHERE record = $1 AND relid = $2 AND old IS NOT NULL) s`, []any{n, t.OID}, &old); err != nil {
		return err
	}
	if err := c.Canonically(func() error {
		return c.Scan(
			fmt.Sprintf(`SELECT %s FROM (SELECT sha256(convert_to(concat(%s, ' ', to_jsonb(n) - coalesce($3::text[], '{}')),
				'UTF8')) AS d FROM
			(SELECT old, new::%s AS n FROM unwind.event WHERE record = $1 AND relid = $2
			AND new IS NOT NULL OFFSET 0) e) s`, sum, keyBefore(t), t.Quoted()),
			[]any{n, t.OID, t.Volatile}, &will)
	}); err != nil {
		return err
	}
	t.Digest = activities.DigestOf([]byte(t.FullName()), []byte(old), fmt.Append(nil, t.Came), []byte(will),
		[]byte(strings.Join(t.Volatile, "\n")))
	return nil
}
