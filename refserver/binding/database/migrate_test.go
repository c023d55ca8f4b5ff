package database_test

import (
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/refserver/binding/database"
)

func TestASchemaOfANewerVersionIsRefusedAndLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, err := database.Open(t.Context(), url, database.Config{})
		must(t, err)
		must(t, s.Bind(t.Context(), box, "p", "minted"))
		must(t, s.Close())
		db := raw(t, url)
		_, err = db.Exec("INSERT INTO keepwell_schema (version) VALUES (99)")
		must(t, err)
		_, err = database.Open(t.Context(), url, database.Config{})
		if err == nil || !strings.Contains(err.Error(), "its schema has version 99, and this program knows none above 1") {
			t.Errorf("opening it returned %v", err)
		}
		_, err = db.Exec("DELETE FROM keepwell_schema WHERE version = 99")
		must(t, err)
		if got, err := open(t, url).Bound(t.Context(), box, "p"); err != nil || got != "minted" {
			t.Errorf("afterwards p is bound to %q, %v", got, err)
		}
	})
}

func TestAStepThatFailsLeavesTheSchemaAsItWas(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := raw(t, url)
		_, err := db.Exec("CREATE TABLE keepwell_bindings (other BIGINT)") // somebody else's
		must(t, err)
		_, err = database.Open(t.Context(), url, database.Config{})
		if err == nil || !strings.Contains(err.Error(), "step 1: ") || !strings.Contains(err.Error(), "keepwell_bindings") {
			t.Errorf("opening it returned %v", err)
		}
		if _, err := db.Exec("SELECT * FROM keepwell_starts"); err == nil {
			t.Error("half of the step was taken")
		}
		_, err = db.Exec("DROP TABLE keepwell_bindings")
		must(t, err)
		must(t, open(t, url).Ping(t.Context()))
	})
}

func TestNothingIsKeptButIDsAndTimes(t *testing.T) {
	url := sqliteURL(t)
	open(t, url)
	rows, err := raw(t, url).Query(`SELECT m.name || '.' || c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c
		WHERE m.type = 'table' ORDER BY 1`)
	must(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var column string
		must(t, rows.Scan(&column))
		got = append(got, strings.TrimPrefix(column, "keepwell_"))
	}
	const want = "bindings.bound bindings.id bindings.instance bindings.sandbox schema.version " +
		"starts.at starts.ended starts.expires starts.id starts.instance starts.sandbox"
	if strings.Join(got, " ") != want {
		t.Errorf("the columns are %q, want %q", got, want)
	}
}
