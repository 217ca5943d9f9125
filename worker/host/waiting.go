package host

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// waiting are the gauges of tasks that wait for a person, or for the world. The server is asked at
// each scrape, so every worker of a namespace tells the same, whoever ran the tasks; a gauge is
// left out while it cannot be asked.
type waiting struct {
	client    client.Client
	namespace string
}

var waitingGauges = []struct {
	desc  *prometheus.Desc
	where string
}{
	{prometheus.NewDesc("unwind_tasks_at_gates", "Tasks that wait at a gate, in the whole namespace.", nil, nil),
		protocol.AttributeGate.GetName()},
	{prometheus.NewDesc("unwind_tasks_parked", "Tasks with an undo or a step that is parked, in the whole namespace.", nil,
		nil), protocol.AttributeParked.GetName()},
	{
		prometheus.NewDesc("unwind_tasks_failing",
			"Tasks in which something fails and is tried on, such as a commit that is owed, in the whole namespace.", nil, nil),
		protocol.AttributeFailing.GetName(),
	},
}

// scrapeLimit is how long a scrape waits for the server.
const scrapeLimit = 3 * time.Second

// Describe implements prometheus.Collector.
func (w waiting) Describe(to chan<- *prometheus.Desc) {
	for _, g := range waitingGauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (w waiting) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for _, g := range waitingGauges {
		found, err := w.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: w.namespace, Query: g.where + " IS NOT NULL AND " + recovery.IsOpen,
		})
		if err == nil {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(found.GetCount()))
		}
	}
}
