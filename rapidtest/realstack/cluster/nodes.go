package cluster

import (
	"context"
	"fmt"
)

// CreateNodes makes nodes called node-1 to node-n, which kwok plays, and waits
// until they are ready. A node has room for 100 pods of one cpu and 1Gi each.
func (c *Cluster) CreateNodes(ctx context.Context, n int) error {
	for i := range n {
		room := map[string]any{"cpu": "100", "memory": "100Gi", "pods": "100"}
		node := named(fmt.Sprintf("node-%d", i+1), "", map[string]any{})
		node.SetLabels(map[string]string{"kubernetes.io/hostname": node.GetName()})
		node.Object["status"] = map[string]any{"allocatable": room, "capacity": room}
		node, err := c.create(ctx, nodes(), "Node", node)
		if err != nil {
			return err
		}
		if _, err := c.WaitFor(ctx, nodes(), node, "the node is ready", isTrue("Ready")); err != nil {
			return err
		}
	}
	return nil
}
