// The parts of Kubernetes for the tests, in one program: its first argument says which one it is.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "which part of Kubernetes?")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": manager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	if part == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[part]
	if !known {
		fmt.Fprintln(os.Stderr, "no part of Kubernetes: "+part)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
