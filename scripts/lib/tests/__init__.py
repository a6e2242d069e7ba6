"""The demo's receiver and judge are the ones that say whether Railyard kept its promises; here they are judged."""
