package crash

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Serve(mutants)
	os.Exit(m.Run())
}
