package main

import (
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

const (
	loopback    = "127.0.0.1"
	clusterName = "active"
	// The id is stored in the database and must be the same at every start.
	clusterID = "c0ffee00-0000-4000-8000-000000000001"
)

func loopbackAddress(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// serverConfig puts all services on the loopback interface and everything that they store into one
// database.
func serverConfig(sql *config.SQL, p ports) *config.Config {
	service := func(port int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
	}
	c := &config.Config{
		Services: map[string]config.Service{
			string(primitives.FrontendService): service(p.frontend),
			string(primitives.HistoryService):  service(p.history),
			string(primitives.MatchingService): service(p.matching),
			string(primitives.WorkerService):   service(p.worker),
		},
		Persistence: config.Persistence{
			DefaultStore: "sqlite", VisibilityStore: "sqlite", NumHistoryShards: 1,
			DataStores: map[string]config.DataStore{"sqlite": {SQL: sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled: true, InitialFailoverVersion: 1, RPCAddress: loopbackAddress(p.frontend), ClusterID: clusterID,
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: loopbackAddress(p.frontend)},
	}
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = loopback
	c.Archival.History.State = "disabled"
	c.Archival.Visibility.State = "disabled"
	c.NamespaceDefaults.Archival.History.State = "disabled"
	c.NamespaceDefaults.Archival.Visibility.State = "disabled"
	return c
}

func staticHosts(p ports) map[primitives.ServiceName]static.Hosts {
	host := func(port int) static.Hosts { return static.SingleLocalHost(loopbackAddress(port)) }
	return map[primitives.ServiceName]static.Hosts{
		primitives.FrontendService: host(p.frontend),
		primitives.HistoryService:  host(p.history),
		primitives.MatchingService: host(p.matching),
		primitives.WorkerService:   host(p.worker),
	}
}

// tuning makes one shard as fast as possible. The default settings poll a shard's transfer queue so
// rarely that each activity waits up to 100 ms; partitions help only if many hosts match tasks.
func tuning() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():                  2000,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():           1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key():          1,
		dynamicconfig.EnableActivityEagerExecution.Key():                 true,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
	}
}
