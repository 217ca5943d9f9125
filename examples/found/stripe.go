package found

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// number is the fact that holds a count.
const number = "number"

// Stripe asks the emulator at a URL which objects are live and what it has counted. Live objects
// are counted by kind and state, because their ids are new each time.
func Stripe(ctx context.Context, url string) (Snapshot, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/_emulator", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("stripe emulator: %w", err)
	}
	defer answer.Body.Close()
	var state struct {
		Live     []string
		Counters map[string]int64
	}
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		return nil, fmt.Errorf("stripe emulator: %w", err)
	}
	counts := map[string]int{}
	for _, line := range state.Live {
		kind, rest, _ := strings.Cut(line, " ")
		_, status, _ := strings.Cut(rest, " ")
		counts[kind+" "+status]++
	}
	s := Snapshot{}
	for live, n := range counts {
		s["live "+live] = Facts{number: fmt.Sprint(n)}
	}
	for name, n := range state.Counters {
		s["counter "+name] = Facts{number: fmt.Sprint(n)}
	}
	return s, nil
}
