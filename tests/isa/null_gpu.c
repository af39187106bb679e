/* A Vulkan layer over Mesa's RADV without hardware (RADV_FORCE_FAMILY). That driver compiles kernels and makes buffers,
 * but has no memory, no semaphores and no queue. The layer gives it one memory, says that what is submitted is done
 * NULL_GPU_MICROSECONDS later, and counts what is recorded. So a program runs on it, and whatever it computes is garbage.
 *
 * The counts go to the file that NULL_GPU_COUNTS names. Built and used by .ci/isa. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define MEMORY_BYTES (24ull << 30)

/* The driver below. A process has one instance and one device at a time. */
static PFN_vkGetInstanceProcAddr below_instance;
static PFN_vkGetDeviceProcAddr below_device;
static VkInstance the_instance;
static VkDevice the_device;

static struct {
    unsigned long dispatches, barriers, submissions, pipelines;
} counted;

/* The greatest value that a timeline was to come to, when it comes there, and what it is until then. */
static uint64_t reached, reached_at, behind;
static uint64_t last_handle = 0x1000;

#define BELOW_INSTANCE(name) ((PFN_##name)below_instance(the_instance, #name))
#define BELOW_DEVICE(name) ((PFN_##name)below_device(the_device, #name))

__attribute__((destructor)) static void say_counts(void)
{
    const char *path = getenv("NULL_GPU_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "dispatches %lu\nbarriers %lu\nsubmissions %lu\npipelines %lu\n", counted.dispatches,
            counted.barriers, counted.submissions, counted.pipelines);
    fclose(file);
}

/* Memory. */

static void give_memory(VkPhysicalDeviceMemoryProperties *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->memoryHeapCount = 1;
    memory->memoryHeaps[0].size = MEMORY_BYTES;
    memory->memoryHeaps[0].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
    memory->memoryTypeCount = 1;
    memory->memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                           VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties *memory)
{
    give_memory(memory);
}

static VKAPI_ATTR void VKAPI_CALL memory_properties_2(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *memory)
{
    give_memory(&memory->memoryProperties);
    for (VkBaseOutStructure *more = memory->pNext; more; more = more->pNext) {
        if (more->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
            continue;
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)more;
        memset(budget->heapBudget, 0, sizeof budget->heapBudget);
        memset(budget->heapUsage, 0, sizeof budget->heapUsage);
        budget->heapBudget[0] = MEMORY_BYTES;
    }
}

static VKAPI_ATTR void VKAPI_CALL buffer_requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *wanted)
{
    BELOW_DEVICE(vkGetBufferMemoryRequirements)(device, buffer, wanted);
    wanted->memoryTypeBits = 1;
}

static VKAPI_ATTR void VKAPI_CALL buffer_requirements_2(VkDevice device, const VkBufferMemoryRequirementsInfo2 *buffer,
                                                        VkMemoryRequirements2 *wanted)
{
    BELOW_DEVICE(vkGetBufferMemoryRequirements2)(device, buffer, wanted);
    wanted->memoryRequirements.memoryTypeBits = 1;
}

static VKAPI_ATTR void VKAPI_CALL image_requirements(VkDevice device, VkImage image, VkMemoryRequirements *wanted)
{
    BELOW_DEVICE(vkGetImageMemoryRequirements)(device, image, wanted);
    wanted->memoryTypeBits = 1;
}

/* Semaphores, fences and the queue: names for nothing. */

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator, VkSemaphore *made)
{
    *made = (VkSemaphore)(uintptr_t)++last_handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_fence(VkDevice device, const VkFenceCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator, VkFence *made)
{
    *made = (VkFence)(uintptr_t)++last_handle;
    return VK_SUCCESS;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1000000000ull * time.tv_sec + time.tv_nsec;
}

static VKAPI_ATTR VkResult VKAPI_CALL semaphore_value(VkDevice device, VkSemaphore semaphore, uint64_t *value)
{
    *value = now() < reached_at ? behind : reached;
    return VK_SUCCESS;
}

/* A thread that sleeps is woken too late to be timed. */
static VKAPI_ATTR VkResult VKAPI_CALL wait(void)
{
    while (now() < reached_at)
        ;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo *batches, VkFence fence)
{
    const char *busy = getenv("NULL_GPU_MICROSECONDS");
    uint64_t begins = now();
    if (begins < reached_at)
        begins = reached_at;
    else
        behind = reached;
    reached_at = begins + (busy ? 1000 * strtoull(busy, NULL, 10) : 0);
    counted.submissions++;
    for (uint32_t i = 0; i < count; i++) {
        for (const VkBaseInStructure *more = batches[i].pNext; more; more = more->pNext) {
            if (more->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
                continue;
            const VkTimelineSemaphoreSubmitInfo *timeline = (const void *)more;
            for (uint32_t j = 0; j < timeline->signalSemaphoreValueCount; j++) {
                uint64_t value = timeline->pSignalSemaphoreValues[j];
                /* All ones stand for no timeline. */
                if (value != UINT64_MAX && value > reached)
                    reached = value;
            }
        }
    }
    return VK_SUCCESS;
}

/* Takes any arguments and does nothing. */
static VKAPI_ATTR VkResult VKAPI_CALL done(void)
{
    return VK_SUCCESS;
}

/* What is counted. */

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z)
{
    counted.dispatches++;
}

static VKAPI_ATTR void VKAPI_CALL barrier(void)
{
    counted.barriers++;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *allocator, VkPipeline *made)
{
    counted.pipelines += count;
    return BELOW_DEVICE(vkCreateComputePipelines)(device, cache, count, infos, allocator, made);
}

/* How a layer is linked. */

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator, VkInstance *made)
{
    VkLayerInstanceCreateInfo *link = (void *)info->pNext;
    while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO && link->function == VK_LAYER_LINK_INFO))
        link = (void *)link->pNext;
    if (!link)
        return VK_ERROR_INITIALIZATION_FAILED;
    below_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateInstance)below_instance(NULL, "vkCreateInstance"))(info, allocator, made);
    the_instance = *made;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDevice *made)
{
    VkLayerDeviceCreateInfo *link = (void *)info->pNext;
    while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && link->function == VK_LAYER_LINK_INFO))
        link = (void *)link->pNext;
    if (!link)
        return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    below_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateDevice)next(the_instance, "vkCreateDevice"))(physical, info, allocator, made);
    the_device = *made;
    return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name);

static const struct {
    const char *name;
    void *function;
} ours[] = {
    {"vkCreateInstance", create_instance},
    {"vkCreateDevice", create_device},
    {"vkGetInstanceProcAddr", instance_function},
    {"vkGetDeviceProcAddr", device_function},
    {"vkGetPhysicalDeviceMemoryProperties", memory_properties},
    {"vkGetPhysicalDeviceMemoryProperties2", memory_properties_2},
    {"vkGetPhysicalDeviceMemoryProperties2KHR", memory_properties_2},
    {"vkGetBufferMemoryRequirements", buffer_requirements},
    {"vkGetBufferMemoryRequirements2", buffer_requirements_2},
    {"vkGetBufferMemoryRequirements2KHR", buffer_requirements_2},
    {"vkGetImageMemoryRequirements", image_requirements},
    {"vkCreateSemaphore", create_semaphore},
    {"vkDestroySemaphore", done},
    {"vkGetSemaphoreCounterValue", semaphore_value},
    {"vkGetSemaphoreCounterValueKHR", semaphore_value},
    {"vkWaitSemaphores", wait},
    {"vkWaitSemaphoresKHR", wait},
    {"vkCreateFence", create_fence},
    {"vkDestroyFence", done},
    {"vkResetFences", done},
    {"vkGetFenceStatus", done},
    {"vkWaitForFences", wait},
    {"vkQueueSubmit", submit},
    {"vkQueueWaitIdle", wait},
    {"vkDeviceWaitIdle", wait},
    {"vkGetQueryPoolResults", done},
    {"vkCreateComputePipelines", create_pipelines},
    {"vkBeginCommandBuffer", done},
    {"vkEndCommandBuffer", done},
    {"vkResetCommandBuffer", done},
    {"vkResetCommandPool", done},
    {"vkFreeCommandBuffers", done},
    {"vkDestroyCommandPool", done},
    {"vkCmdDispatch", dispatch},
    {"vkCmdPipelineBarrier", barrier},
};

static PFN_vkVoidFunction our_function(const char *name)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i].name))
            return (PFN_vkVoidFunction)ours[i].function;
    /* Nothing else is recorded. */
    return strncmp(name, "vkCmd", 5) ? NULL : (PFN_vkVoidFunction)done;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name)
{
    PFN_vkVoidFunction found = our_function(name);
    return found ? found : below_device(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char *name)
{
    PFN_vkVoidFunction found = our_function(name);
    return found ? found : below_instance(instance, name);
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *about)
{
    about->loaderLayerInterfaceVersion = 2;
    about->pfnGetInstanceProcAddr = instance_function;
    about->pfnGetDeviceProcAddr = device_function;
    about->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
