package workflows_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/requestlimit"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// send sends a request without looking at its size, as any client can.
func (l *live) send(s session.Session, name, id string, argument any) error {
	handle, err := l.client.UpdateWorkflow(l.Context(), client.UpdateWorkflowOptions{
		WorkflowID: s.ID(), UpdateID: id, UpdateName: name, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(l.Context(), nil)
	}
	return err
}

// Requests that a server delivers, and whose refusal it would not take: alone, and together in one
// workflow task.
func TestRequestsThatAreTooLargeAreRefusedAndStopNothing(t *testing.T) {
	server, _ := newPatientServer(t)
	o := server.ClientOptions()
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, requestlimit.DialOption())
	c, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	l := newLive(t, c, &world{})
	stop := l.startWorker()
	s, _, err := session.Open(t.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(t, err)
	for _, size := range []int{1_500_000, 2_200_000, 3_900_000} {
		err := l.send(s, protocol.UpdateNote, fmt.Sprint(size), protocol.NoteRequest{Text: strings.Repeat("x", size)})
		require.ErrorContains(t, err, "send fewer steps at once", size)
	}
	err = l.send(s, protocol.UpdateApprove, "approve", protocol.Decision{Step: "a", Why: strings.Repeat("x", 3_000_000)})
	require.ErrorContains(t, err, "the request has ")

	stop() // so that all of these come in one workflow task
	var sent sync.WaitGroup
	for i := range 6 {
		sent.Go(func() {
			var all []string
			for n := range 15 {
				all = append(all,
					fmt.Sprintf(`{"uses": "fake.do", "needs": [], "with": {"path": "/f/%d/%d", "from": %q}}`, i, n,
						strings.Repeat("y", 58_000)))
			}
			answer, err := s.Step(t.Context(), fmt.Sprintf("r%d", i), steps(all...).Steps...)
			assert.NoError(t, err)
			assert.Len(t, answer.Steps, 15)
		})
	}
	l.startWorker()
	sent.Wait()
	_, err = s.Note(t.Context(), "", "it goes on")
	require.NoError(t, err)
	_, err = s.Finish(t.Context(), "")
	require.NoError(t, err)
}
